"""Filters over payloads: their language, typed columns, and which documents they allow."""
