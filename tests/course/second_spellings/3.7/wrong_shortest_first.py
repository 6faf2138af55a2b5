"""Only the shortest match is looked for: a longer one would contain it."""


def propose(tokens, rules, room):
    n = rules.prompt_lookup_min
    ends = (end for end in range(n, len(tokens)) if tokens[end - n : end] == tokens[-n:])
    end = next(ends, len(tokens))
    return tokens[end : end + min(max(room, 0), rules.num_speculative_tokens)]
