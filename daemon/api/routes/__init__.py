"""The operations, a file for each group of the seed's section 4 and one for the operator's."""
