"""Pictures with matplotlib (the extra `plot`). Each function draws on an `Axes`, the current one by default, and
returns it. Colors are those of Okabe and Ito, which people with any color vision can tell apart.
"""

from .canvas import PALETTE as PALETTE
from .classifiers import decision_regions as decision_regions
from .curves import calibration as calibration
from .curves import det as det
from .curves import precision_recall as precision_recall
from .curves import roc as roc
from .learning import restarts as restarts
from .learning import selection as selection
from .learning import trace as trace
from .matrices import confusion as confusion
from .matrices import label_image as label_image
from .matrices import loadings as loadings
from .matrices import marginals as marginals
from .matrices import scree as scree
from .matrices import transitions as transitions
from .mixtures import density as density
from .mixtures import ellipse as ellipse
from .mixtures import mixture as mixture
from .mixtures import responsibilities as responsibilities
from .networks import chain_diagram as chain_diagram
from .networks import network as network
from .series import band as band
from .series import forecast as forecast
from .series import posterior_states as posterior_states
from .series import process as process
