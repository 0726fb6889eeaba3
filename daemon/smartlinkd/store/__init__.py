"""What must survive: executions, their events, webhook deliveries. One SQLite file."""
