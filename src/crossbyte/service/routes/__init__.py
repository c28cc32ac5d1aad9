"""Answer each route of the service."""
