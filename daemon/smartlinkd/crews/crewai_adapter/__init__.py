"""The adapter that runs a CrewAI project as a worker: `PYTHON …/__main__.py PROJECT`.

The crew's own interpreter (Python 3.10 or later) runs it. It imports the standard library alone
until it has its inputs, then `crewai` (1.11 or later), and nothing of the daemon ever. The daemon
imports `finding` and `texts`, and starts the rest; the example crew has its `connection`, too.
Imports run one way: `runner → progress → connection → texts`. See
docs/decisions/074-crewai-adapter.md.
"""
