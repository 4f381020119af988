"""The paper's claims (`claims.yaml`) and one judge each: from setups to verdicts.

No figure is drawn here, and no threshold stands anywhere else.
"""
