"""The laboratory: protocols, metrics, runs and reports. Nothing else imports it but the command line."""
