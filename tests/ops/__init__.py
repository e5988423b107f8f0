"""The command line, settings, secrets and deployments."""
