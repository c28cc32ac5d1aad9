"""The HTTP service and its page."""
