"""Reports: what they are made of; as text, as Markdown and as a page with charts; the report of a model."""
