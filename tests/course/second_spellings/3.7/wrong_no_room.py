"""Never asks for the room."""


def propose(tokens, rules, room):
    for n in range(rules.prompt_lookup_max, rules.prompt_lookup_min - 1, -1):
        for end in range(n, len(tokens)):
            if tokens[end - n : end] == tokens[len(tokens) - n :]:
                return tokens[end : end + rules.num_speculative_tokens]
    return []
