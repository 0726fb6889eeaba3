"""HTTP requests to others: to the marketplace, and to addresses that a user has named."""
