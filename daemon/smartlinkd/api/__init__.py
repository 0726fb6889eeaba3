"""The HTTP apps: routes, schemas, guards, errors. They know no CDP and no marketplace."""
