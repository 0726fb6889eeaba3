"""The example crew: product links in, a post about the best deals among them out.

It is a worker as `docs/crew-workers.md` describes one; its connection is the CrewAI adapter's.
Three agents have one task each: a scout converts the links, an analyst ranks them by commission,
a writer makes the post, by a template or by the model that the crew's environment names.
"""
