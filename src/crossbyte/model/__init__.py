"""The CMCQ estimator: parameters, fit, objective, selection, file."""
