"""Read users' files and prepare features."""
