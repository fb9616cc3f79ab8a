"""The experiments of the four papers, one file a paper."""

#: Short name, as in the names of experiments, and full citation.
PAPERS = {
    "soft": "Ofer Meshi, Nathan Srebro and Tamir Hazan: Efficient training of structured SVMs via soft constraints (AISTATS 2015)",
    "intractable": "Thomas Finley and Thorsten Joachims: Training structural SVMs when exact inference is intractable (ICML 2008)",
    "cutting": "Thorsten Joachims, Thomas Finley and Chun-Nam John Yu: Cutting-plane training of structural SVMs "
    "(Machine Learning 77, 2009)",
    "gap": "Xinhua Zhang, Ankan Saha and S. V. N. Vishwanathan: Accelerated training of max-margin Markov networks with kernels "
    "(ALT 2011)",
}
