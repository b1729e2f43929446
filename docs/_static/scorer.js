// Ranks guides before records, change logs and the design in the site's search. The numbers below are Sphinx's own.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename]) =>
    /CHANGELOG|CONTRIBUTING|README|architecture|\/tour|measurements\/|op-(coverage|dtypes|dynamic)/.test(docname)
      ? score - 4 : /\/reference/.test(docname) ? score - 2 : score,
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
