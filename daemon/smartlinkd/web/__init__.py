"""The owner's page: its files, the libraries that it uses, and how both are served."""
