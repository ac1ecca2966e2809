"""Primary keys in schemas: settings read from properties, and which changes are refused."""
