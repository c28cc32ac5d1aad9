"""Answer the routes of the service, by subject."""
