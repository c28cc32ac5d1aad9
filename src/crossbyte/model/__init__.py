"""Fit CMCQ: the estimator, its parameters, objective, selection and file."""
