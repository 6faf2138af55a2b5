"""What the training prompts are about: plain lists of words.

Owns the lists. Does not know how they are put together (``prompts``), nor what is kept back (``held_out``).

vLLM: none (it does not train).
"""

from __future__ import annotations


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.replace("\n", " ").split(";") if item.strip())


TOPICS = _items("""
photosynthesis; volcanoes; glaciers; coral reefs; black holes; comets; the moon's phases; tides; earthquakes;
rainbows; thunderstorms; deserts; rainforests; migration of birds; hibernation; honeybees; ants; spiders; whales;
dolphins; sharks; elephants; penguins; owls; wolves; cats; dogs; horses; dinosaurs; fossils; evolution; genetics;
vaccines; antibiotics; the human heart; the lungs; sleep; dreams; memory; stress; exercise; vitamins; healthy
breakfasts; drinking enough water; first aid; meditation; yoga; running a marathon; swimming; cycling; football;
basketball; chess; tennis; mountain hiking; camping; gardening; growing tomatoes; composting; house plants; baking
bread; cooking pasta; making soup; chocolate; coffee; tea; cheese; olive oil; spices; apples; potatoes; rice; street
food; vegetarian cooking; food safety; kitchen knives; the Roman Empire; ancient Egypt; the Silk Road; the
Renaissance; the Industrial Revolution; the printing press; the steam engine; railways; the history of writing;
medieval castles; Vikings; the age of sail; world maps; the compass; the telescope; the microscope; electricity;
magnets; batteries; solar panels; wind turbines; nuclear energy; hydrogen; electric cars; bridges; skyscrapers;
tunnels; dams; airports; airplanes; rockets; satellites; space stations; robots; 3D printing; computers; programming
languages; Python; JavaScript; databases; operating systems; open source software; version control; debugging; unit
tests; algorithms; sorting; recursion; linked lists; hash tables; binary search; machine learning; neural networks;
speech recognition; search engines; cloud computing; encryption; passwords; phishing; online privacy; social media;
video games; mobile phones; email etiquette; spreadsheets; typing faster; note taking; time management; public
speaking; job interviews; writing a resume; negotiation; teamwork; leadership; remote work; starting a small
business; marketing; budgeting; saving money; credit cards; inflation; taxes; insurance; the stock market; supply
and demand; international trade; democracy; elections; human rights; the United Nations; local government; public
libraries; museums; schools; learning a language; English grammar; poetry; novels; fairy tales; myths; folklore;
detective stories; science fiction; comics; theatre; film making; photography; painting; drawing; sculpture;
pottery; knitting; woodworking; origami; calligraphy; fashion; architecture; jazz; classical music; playing the
guitar; the piano; drums; singing; opera; dance; festivals; weddings; birthdays; holidays; friendship; family;
kindness; honesty; courage; patience; gratitude; humor; curiosity; creativity; happiness; loneliness; moving to a
new city; travel by train; packing a suitcase; visiting a big city; camping with children; a road trip; the ocean;
rivers; lakes; forests; mountains; islands; caves; waterfalls; snow; autumn; spring; summer; winter; clouds; wind;
fog; the sun; the planets; galaxies; gravity; light; sound; heat; atoms; molecules; acids; metals; plastics; glass;
paper; recycling; air pollution; clean water; climate change; national parks; endangered species; zoos; farms;
fishing; forestry; irrigation; soil; prime numbers; fractions; percentages; geometry; statistics; probability;
graphs; logic; puzzles; riddles; magic tricks; philosophy; ethics; psychology; sociology; archaeology; anthropology;
linguistics; geography; astronomy; chemistry; physics; biology; medicine; nursing; dentistry; law; journalism;
engineering; carpentry; plumbing; firefighting; teaching; parenting; babysitting; elderly care; pets; adopting a
cat; training a puppy; aquariums; bird watching; beekeeping; stargazing
""")

NAMES = _items("""
Anna; Ben; Clara; David; Elena; Felix; Grace; Hugo; Ines; Jonas; Kate; Leo; Maria; Nils; Olga; Paul; Rosa; Sam;
Tara; Victor
""")

PLACES = _items("""
a small village; the old harbour; a busy market; a quiet library; the edge of the forest; a snowy mountain; a space
station; a lighthouse; a crowded train; an empty theatre; a farm; a castle; the school; a hospital; a bakery; the
beach; a workshop
""")

THINGS = _items("""
a lost key; a broken clock; a strange letter; an old map; a talking dog; a red umbrella; a secret door; a silver
coin; a paper boat; a forgotten song; a robot; a storm; a new neighbour; a missing book; a birthday cake; a wooden
box
""")

TASKS = _items("""
reverses a string; checks whether a number is prime; counts the vowels in a text; finds the largest number in a
list; sorts a list of names; removes duplicates from a list; computes a factorial; adds two matrices; reads a CSV
file; counts words in a file; converts Celsius to Fahrenheit; finds the average of numbers; merges two dictionaries;
checks for balanced brackets; flattens a nested list; rolls two dice; formats a date; validates an email address;
finds all even numbers; calculates the area of a circle; prints a multiplication table; searches a sorted list;
counts letters in a word; splits a text into sentences; makes a shopping list; models a bank account; a stack; a
queue; draws a triangle of stars; converts a number to binary; computes the greatest common divisor; joins strings
with commas
""")

LANGUAGES = ("Python", "Python", "Python", "JavaScript", "Java", "C", "SQL", "HTML")

VARIABLES = _items("""
items; numbers; data; entries; samples; elements; current; total_sum; record; output; counter; position; text_lines;
parts; collected; limit_value; first_one; answer; queue; size_so_far
""")
