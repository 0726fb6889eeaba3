"""An affiliate portal to practise on: for the demo, the tests, and whoever wants to look."""
