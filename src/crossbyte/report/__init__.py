"""Write reports: one content model, text and HTML renderers, one SVG writer."""
