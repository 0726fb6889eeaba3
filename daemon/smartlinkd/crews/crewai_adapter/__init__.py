"""Run a CrewAI project as a worker: `PYTHON …/crewai_adapter/__main__.py PROJECT`.

The problem: CrewAI needs asyncio, more than a hundred packages and its own versions of some that
the daemon has, too. So a crew has an interpreter of its own, in which nothing of the daemon is, and
nobody in it knows the worker protocol (`docs/crew-workers.md`).

The choice: this package, which that interpreter runs. It imports the standard library alone until
it knows its inputs, then `crewai`, and nothing of the daemon ever; so its modules name one another
with a dot. It runs on Python 3.10. It loads the project as `crewai run` does, tells of its
progress, and answers for the human. What is known of CrewAI here was read in its source, 1.15; what
is used of it is there since 1.11, or a guard says what happens without it.

Arrows run one way: `running → human → progress → connection → words`. `apart`, `finding` and
`smartlinkd_crew` know of what is to the right of `progress` alone. The daemon imports `finding` and
`words`, and starts the rest.

Everything that crews say is cut to bounds, visibly, and never refused for its size; steps give way
first, so that the ends of tasks and the result always have room.
"""
