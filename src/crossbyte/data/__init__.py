"""Where pairs come from: files, features, and generated data."""
