"""Everything known of the marketplace: its hosts, links, answers, signs and arithmetic.

Pure rules have files of their own and touch nothing. The files that reach out are `shortlinks`,
`open_api` and `third_party` (HTTP without a cookie, by `net/client.py`), and `portal` and
`redirects` (the owner's page in the browser).
Nothing here hides automation, answers a human check or guesses at a signature: where the portal
asks for a person, the call ends with `HumanCheck`.
"""
