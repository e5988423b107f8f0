"""All that concerns PostgreSQL alone."""
