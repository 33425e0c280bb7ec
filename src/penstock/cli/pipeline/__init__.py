"""`penstock pipeline`: one file for each of its commands."""
