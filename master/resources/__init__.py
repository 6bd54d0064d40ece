"""How many nodes a job is worth, found out while it trains (`--plan`): docs/resources.md, decision 056."""
