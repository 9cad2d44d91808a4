/** A text of each of five kinds, written for this page. */
export const EXAMPLES = {
  package: `Tidepool is a small monitor for home weather stations. It reads temperature, humidity, rain and wind from sensors attached over USB or a serial line, stores the readings in an SQLite database, and draws charts of the last day, week and year in the browser. Alarms can be sent by e-mail when a value leaves a range chosen by the user.

This package contains the server. The charts are in the package tidepool-web.
`,
  paper: `We present Larkspur, a method that finds duplicate questions in community forums. It compares questions by the answers they received rather than by their words. On three forums it finds a third more duplicates than methods that read the question alone, at the same precision, and it needs no labelled pairs.
`,
  ticket: `Since version 4.2 the calendar shows all appointments one hour too late. It happens in the week view and in printed pages; the day view is right. The time zone of the computer is Lisbon, and the server runs in UTC. Restarting the program or making a new profile does not help.
`,
  "e-mail": `Hi Anna,

could you send me the draft of the budget before Thursday? Peter would like to look at the travel costs first, and the board meets on Friday at ten. If the numbers of the Lisbon office are missing, send what you have.

Thanks, Mia
`,
  news: `The harbour authority of Port Ellis said on Monday that it will close the eastern pier for repairs until the end of March. Divers found cracks in eleven of its forty pillars last week. Ferries to the islands leave from the western pier meanwhile, and the fish market moves to the old customs hall. The repairs are expected to cost 2.4 million dollars.
`,
};
