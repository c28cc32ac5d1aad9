"""Read users' pictures in processes of their own."""
