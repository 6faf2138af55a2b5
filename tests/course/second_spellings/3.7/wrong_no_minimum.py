"""The best count, however small."""


def propose(tokens, rules, room):
    best, follow = 0, len(tokens)
    for end in range(1, len(tokens)):
        n = 0
        while n < min(end, rules.prompt_lookup_max) and tokens[end - 1 - n] == tokens[-1 - n]:
            n += 1
        if n > best:
            best, follow = n, end
    return tokens[follow : follow + min(max(room, 0), rules.num_speculative_tokens)]
