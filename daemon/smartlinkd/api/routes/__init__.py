"""The operations: a file for each group of the seed's section 4, and two for the owner (`crews`,
`operator`)."""
