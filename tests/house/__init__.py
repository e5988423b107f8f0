"""Rules for the source, the documents and the texts."""
