"""The marketplace (Shopee): its hosts, links, answers, signs and arithmetic.

`shortlinks`, `open_api` and `third_party` make HTTP requests without a cookie; `portal` and
`page_state` drive a tab of the owner's. The other modules are pure. Nothing here hides automation,
answers a human check or guesses at a signature. A second marketplace would be a folder beside this
one: see "Changing something" in docs/architecture.md.
"""
