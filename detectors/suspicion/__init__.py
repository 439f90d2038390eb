"""Reports that rank by suspicion scores: the formulas, and what such a report is evidence of."""
