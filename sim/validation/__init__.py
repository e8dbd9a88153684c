"""How good was the prediction of a run that was observed, what of it was off, and why?

One directory of an observed run (``observed``, ``iterations``) is served once more by the
simulator: the same requests at the same times (``traffic``, ``prediction``). Then both are laid
side by side: figures (``figures``), batches (``composition``), and the observed iterations beside
what the cost model asks for them (``pricing``, ``regimes``), which tells its errors from those of
scheduling. ``residuals`` and ``proposals`` look for what may be wrong, ``advice`` plays the run
again with each of these put right (``variant``), ``wording`` tells it. ``engine_fit`` makes an
engine preset of observed iterations, ``engine_file`` writes it. ``document`` is all of it as plain
data, ``console`` as tables, ``series`` what is drawn.
"""
