"""SQL over the wire: a server of Arrow Flight SQL that reads the tables of a catalog."""
