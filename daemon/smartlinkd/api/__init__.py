"""The HTTP facade: routes, schemas, guards, errors. It knows no CDP and no marketplace."""
