"""Why a document is as near to a query as it is."""
