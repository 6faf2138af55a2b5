"""The texts of the held-out prompts: to repeat, to correct and to sum up. None of them occurs in the training.

Owns the texts and nothing else. Each text has 80 to 150 words, each piece of code 15 to 25 lines.

vLLM: none (it does not train).
"""

from __future__ import annotations

COPIED = (
    "The ferry to the northern islands leaves twice a day, at seven in the morning and at four in the afternoon. "
    "In winter the second crossing is often cancelled, because the wind turns after noon and the pier has no "
    "shelter. Passengers with bicycles should arrive forty minutes early and wait at the blue gate, where a "
    "member of the crew checks the tyres for sand. Hot drinks are sold on the upper deck. Dogs travel for free as"
    " long as they stay off the seats, and large parcels can be left with the captain until Friday. The journey "
    "takes ninety minutes in calm weather.",
    "Our quilt guild has met in the back room of the post office for thirty-one years. It began with four women, "
    "a single lamp and a box of curtain samples that a hotel had thrown away. Today there are twenty-six members,"
    " the youngest of them nine years old, and the finished blankets hang in the county hospital, two schools and"
    " a lighthouse. Nobody pays a fee. Whoever joins brings a cake, a pair of scissors and a piece of cloth with "
    "a story, and tells that story while the others sew. The best stories are written on the back in red thread.",
    "Before you open the hive of the observatory, switch off every lamp and let your eyes rest for ten minutes. "
    "The dome turns on eight rubber wheels; push it slowly, or the chain will slip from the third cog. Set the "
    "finder first, then the main tube, and write the temperature of the mirror into the green book. If dew "
    "appears, do not wipe the glass. Close the lower vents, start the small fan and wait. When the work is done, "
    "lower the counterweight, cover the eyepieces with their caps, and leave the key in the drawer below the "
    "barometer for the next observer.",
    "The hedgehog came back on a wet evening in May, a little before ten. It followed the same path as last year,"
    " under the gate, along the wall and past the broken flowerpot, and it stopped at the saucer as if no time "
    "had passed. We had put out cat food and a bowl of water, never milk, which makes hedgehogs ill. For eleven "
    "minutes it ate without looking up. Then it sniffed the boot that my brother had left on the step, decided "
    "that it was of no use, and walked off into the rhubarb, where we could hear it for a long time.",
)

# With misspelt words.
TYPOS = (
    "Last satuday the town opend its new swiming hall, after six yeers of planing. The mayor cut a ribon that was"
    " held by two members of the lemonade club, and a brass band with one lonly trombone playd on the diving "
    "bord. More then four hundred peple stood in line, allthough it was raining, and the first to jump was a "
    "retierd tram driver who had sold his old boat to suport the building. The water is heatd by the bakery next "
    "dor. Children swim for free on wensdays, and there is a quite hour for beginers evry morning at eight.",
    "My grandfater kept a typewriter on the kitchin table, betwen the bred and the radio. He wrote one leter a "
    "day, allways after lunch, and he never corected a misteak; he simply put a small cros above it and went on. "
    "When I was eigth he let me change the ribon, and my fingers were blak for a week. The leters went to a frend"
    " in Lisbon who had been a ship's cook. Ninty of them came back to us in a shoe box, tyed with string, and we"
    " read them aloud on the ferst evening of every winter. They are mostly abuot soup, the wether and chess.",
    "The workshop on bonsai care begins at nine oclock sharp and lasts untill noon. Pleas bring an apron, a "
    "notebok and a tree in a pot that is not larger then a hat. We will start with a short lectur about roots and"
    " watter, then each particpant cuts one branch under the eyes of the teecher. Wire, soil and gravel are "
    "inclded in the price. Parking is dificult near the temple, so take the ferry or the yelow bus if you can. "
    "Lunch is not servd, but there is a small noodle shop acros the street wich opens at twelve and gives us a "
    "discont.",
)

SUMMED_UP = (
    "The old ice house at the lake was built in 1871, when the hotels of the valley needed ice for their kitchens"
    " all summer. Every January, forty men cut blocks from the frozen water with long saws and stored them "
    "between layers of straw. A block lost only a tenth of its weight until August. The trade ended within five "
    "years after the electric refrigerator arrived, and the building stood empty for decades. Since last spring "
    "it has been a concert hall, because its thick double walls keep out the noise of the road.",
    "Lichens are not single organisms but partnerships of a fungus and an alga. The fungus gives shelter and "
    "holds water, while the alga makes sugar from sunlight. Because they take everything from the air, lichens "
    "react quickly when the air is dirty, and scientists use them to map pollution in cities. In one study, "
    "volunteers counted the species on lime trees along a busy street before and after it was closed to lorries. "
    "Within four years the number of species had doubled, and two that had been missing for a century came back.",
    "A tram driver in our city noticed that the same passenger fell asleep every evening and missed her stop. He "
    "began to ring the bell twice when they came near it. Other drivers heard of this and did the same, and soon "
    "the route had a list of sleepers, their stops and the kind of signal that woke them. The company learned of "
    "it only when a newspaper asked for an interview. Instead of forbidding it, the director ordered small cards "
    "for the seats: whoever turns the card to the red side is woken at the stop written on it.",
    "Saffron is the most expensive spice in the world by weight. Each flower has only three red threads, which "
    "are picked by hand on a few mornings in autumn, before the sun opens the petals. About one hundred and fifty"
    " thousand flowers are needed for a kilogram. The threads are dried over charcoal and lose four fifths of "
    "their weight. Because the price is high, it has been faked for centuries, with marigold, beet fibres or dyed"
    " paper. A simple test helps: real threads colour warm water slowly and stay red, while a fake loses its "
    "colour at once.",
    "Tardigrades, also called water bears, are animals of half a millimetre that live in moss, mud and melting "
    "snow. When their surroundings dry out, they pull in their legs, lose almost all their water and stop every "
    "sign of life. In this state they have survived ten days outside a satellite, pressures deeper than any "
    "ocean, and decades in a freezer. They are not invincible, however. Long exposure to warm water kills them "
    "within a day, and researchers warn that a slowly warming climate may hurt them more than a journey through "
    "space.",
    "For two hundred years the village set its clocks by the sundial on the church. When the railway came, the "
    "station clock ran eleven minutes ahead, and for a whole year people missed either their trains or their "
    "mass. The priest refused to move the dial, and the station master refused to move the clock. In the end the "
    "school teacher painted a second scale on the church wall, in blue, which showed railway time. Both scales "
    "are still there, and children learn at the age of seven why the shadow and the timetable disagree.",
    "The first hot-air balloon that carried living beings rose in 1783 with a sheep, a duck and a rooster on "
    "board. The inventors, two brothers who made paper, believed that smoke itself lifted the bag, so they burned"
    " wet straw and old shoes. In truth the warm air inside is lighter than the cold air around it. The flight "
    "lasted eight minutes and ended in a forest three kilometres away. All three animals were well, although the "
    "rooster had a hurt wing, which the sheep was later found to have kicked before the start.",
    "Kombucha is made from sweet tea and a rubbery disc of yeast and bacteria. The yeast turns sugar into "
    "alcohol, and the bacteria turn most of that alcohol into acids, which give the drink its sharp taste. Makers"
    " praise its effect on digestion, sleep and even hair. So far, studies in humans are few and small, and most "
    "of the claims come from tests in animals. Doctors advise people with a weak immune system to avoid home-made"
    " bottles, because a dirty jar can grow mould. For everyone else, a glass a day appears to be harmless.",
    "Samurai are remembered as warriors, but for two and a half centuries of peace most of them never fought a "
    "battle. They became clerks, teachers, tax collectors and inspectors of bridges. Their pay was counted in "
    "rice and did not rise with prices, so many families fell into debt and made umbrellas or bred goldfish in "
    "secret. The two swords remained as a sign of rank. When the government ended their privileges in 1876, some "
    "rebelled, while others used their schooling to found newspapers, banks and a beer brewery that exists to "
    "this day.",
    "The chess clock was invented because of one very slow game. At a tournament in 1851, a player thought for "
    "more than two hours about a single move, and the audience fell asleep. Thirty years later, two clocks were "
    "joined on a wooden balance, so that one stopped when the other ran. The small flag that falls at the full "
    "hour came in 1899. Digital clocks now add a few seconds for each move, which rewards players who decide "
    "quickly, and old masters complain that endgames have become a sport for the fingers.",
    "Moths are drawn to lamps, and for a long time it was thought that they confuse them with the moon. New films"
    " with fast cameras suggest another reason. A flying moth keeps its back turned to the brightest part of its "
    "surroundings, which outdoors is always the sky. Near a lamp, this reflex tilts the animal, and it circles "
    "the light without being able to leave. The finding matters for towns, since lamps that shine only downwards "
    "trap far fewer insects. Several councils have begun to replace the round globes in their parks.",
    "A violin maker in the north builds instruments from the floors of houses that are torn down. The boards are "
    "a century old, dry and full of nail holes, which he fills with a paste of sawdust and egg. At first "
    "musicians laughed. Then a physicist measured the sound and found it as even as that of instruments that cost"
    " ten times as much. Each violin has a small label inside with the street, the number of the house and the "
    "name of the last family. Some owners have visited the empty lots to play there.",
)

CODES = (
    '''def collatz(start, limit=1000):
    """The numbers from start down to 1."""
    steps = [start]
    while steps[-1] != 1:
        if len(steps) > limit:
            raise ValueError("no end in sight")
        last = steps[-1]
        if last % 2 == 0:
            steps.append(last // 2)
        else:
            steps.append(3 * last + 1)
    return steps


for start in range(1, 10):
    chain = collatz(start)
    print(start, len(chain), max(chain))''',
    """class LemonadeStand:
    def __init__(self, price, lemons):
        self.price = price
        self.lemons = lemons
        self.income = 0

    def sell(self, cups):
        if cups > self.lemons * 2:
            cups = self.lemons * 2
        self.lemons -= (cups + 1) // 2
        self.income += cups * self.price
        return cups

    def report(self):
        return f"{self.lemons} lemons left, {self.income} earned"


stand = LemonadeStand(price=2, lemons=30)
print(stand.sell(17))
print(stand.report())""",
    '''def timetable(first, last, every):
    """Departures of the ferry in minutes after midnight."""
    return list(range(first, last + 1, every))


def next_departure(departures, now):
    for minute in departures:
        if minute >= now:
            return minute
    return None


def show(minute):
    if minute is None:
        return "no ferry today"
    hours, rest = divmod(minute, 60)
    return f"{hours:02d}:{rest:02d}"


print(show(next_departure(timetable(420, 1320, 45), 615)))''',
)

# (code, a name in it, the name that is to take its place)
RENAMED = (
    (
        '''def encode(text):
    """Run-length encoding: aaab becomes a3b1."""
    pieces = []
    i = 0
    while i < len(text):
        run = 1
        while i + run < len(text) and text[i + run] == text[i]:
            run += 1
        pieces.append(text[i] + str(run))
        i += run
    return "".join(pieces)


def test_encode():
    assert encode("") == ""
    assert encode("aaab") == "a3b1"
    assert encode("abc") == "a1b1c1"''',
        "pieces",
        "parts",
    ),
    (
        '''def hottest(log):
    """The day of a temperature log with the highest mean."""
    best_day = None
    best_mean = float("-inf")
    for day, readings in log.items():
        if not readings:
            continue
        mean = sum(readings) / len(readings)
        if mean > best_mean:
            best_day = day
            best_mean = mean
    return best_day, best_mean


log = {"mon": [11.5, 14.0], "tue": [], "wed": [9.0, 19.5]}
print(hottest(log))''',
        "readings",
        "degrees",
    ),
)
