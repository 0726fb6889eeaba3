"""The HTTP apps: routes, schemas, guards, errors.

They know no CDP, and of `marketplace/` the links in a text, the form of a cookie and product data.
"""
