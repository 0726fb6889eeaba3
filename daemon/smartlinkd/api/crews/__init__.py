"""The crews' own API: the endpoints of every crew, and the shape of their failures."""
