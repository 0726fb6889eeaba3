"""Executions, their events and webhook deliveries in one SQLite file, over restarts and kills."""
