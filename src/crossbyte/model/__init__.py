"""The model: objective, estimator, selection, calibration, and the file that keeps them."""
