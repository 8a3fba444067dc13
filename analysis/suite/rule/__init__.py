"""Whether the rule of decision and the explanation keep their promises, as studies have shown."""
