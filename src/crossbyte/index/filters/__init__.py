"""Filter documents by payload fields: grammar, typed columns, conditions."""
