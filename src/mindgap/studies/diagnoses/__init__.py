"""How well the diagnoses name what was planted, and how often they accuse a healthy subject."""
