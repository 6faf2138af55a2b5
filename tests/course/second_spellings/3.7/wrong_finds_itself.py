"""An index of every place, the last one too."""


def propose(tokens, rules, room):
    for n in reversed(range(rules.prompt_lookup_min, rules.prompt_lookup_max + 1)):
        places = [end for end in range(n, len(tokens) + 1) if tokens[end - n : end] == tokens[len(tokens) - n :]]
        if places:
            return tokens[places[0] :][: min(max(room, 0), rules.num_speculative_tokens)]
    return []
