"""The example crew: product links in, a post about the best deals among them out.

    python -m smartlinkd.crews.deal_post        what `command` in `[[crews]]` has to say

Three agents, each with one task: a scout converts the links, an analyst ranks what was converted by
commission, a writer makes the post. It is a worker as `docs/crew-workers.md` describes one, and for
the reader also an example of one: the standard library alone, started anew for each execution, with
no way to the daemon but its connection. It needs no key. Where the crew's environment
has `OPENAI_BASE_URL` and `OPENAI_API_KEY`, the writer has a model write.
"""
